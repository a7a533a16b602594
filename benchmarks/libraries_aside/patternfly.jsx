import "@patternfly/react-core/dist/styles/base.css";
import React, { useState } from "react";
import { createRoot } from "react-dom/client";
import { Button, Checkbox, DatePicker, Dropdown, DropdownItem, DropdownList, ExpandableSection, Form, FormGroup, FormSelect,
  FormSelectOption, Label, MenuToggle, Modal, ModalBody, ModalFooter, ModalHeader, NumberInput, Pagination, Radio, SearchInput,
  Select, SelectList, SelectOption, Slider, Switch, Tab, Tabs, TabTitleText, TextArea, TextInput, ToggleGroup, ToggleGroupItem,
  TreeView } from "@patternfly/react-core";

const useValue = (start) => { const [value, set] = useState(start); return [value, (event, next) => set(next ?? event)]; };

const Entry = () => {
  const [name, setName] = useValue(""), [amount, setAmount] = useState(2), [live, setLive] = useValue(false), [size, setSize] = useValue(30);
  const [city, setCity] = useState("Oslo"), [isOpen, setOpen] = useState(false), [way, setWay] = useState("l"), [agree, setAgree] = useValue(false);
  return <Form isHorizontal>
    <FormGroup label="Name" fieldId="name" isRequired><TextInput id="name" value={name} onChange={setName} isRequired /></FormGroup>
    <FormGroup label="Amount"><NumberInput value={amount} onMinus={() => setAmount(amount - 1)} onPlus={() => setAmount(amount + 1)}
      onChange={(event) => setAmount(Number(event.target.value))} inputAriaLabel="Amount" /></FormGroup>
    <FormGroup label="Kind" fieldId="kind"><FormSelect id="kind"><FormSelectOption label="red" /><FormSelectOption label="blue" /></FormSelect></FormGroup>
    <FormGroup label="City"><Select isOpen={isOpen} selected={city} onSelect={(_, next) => { setCity(next); setOpen(false); }} onOpenChange={setOpen}
      toggle={(ref) => <MenuToggle ref={ref} id="city" onClick={() => setOpen(!isOpen)}>{city}</MenuToggle>}>
      <SelectList>{["Oslo", "Rome", "Lima"].map((one) => <SelectOption key={one} value={one}>{one}</SelectOption>)}</SelectList></Select></FormGroup>
    <FormGroup label="Day"><DatePicker value="2026-05-04" inputProps={{ id: "day" }} /></FormGroup>
    <FormGroup label="Way"><ToggleGroup>{["l", "m"].map((one) => <ToggleGroupItem key={one} text={`Way ${one}`} buttonId={`way-${one}`}
      isSelected={way === one} onChange={() => setWay(one)} />)}</ToggleGroup></FormGroup>
    <FormGroup><Checkbox id="agree" label="Agree" isChecked={agree} onChange={setAgree} /><Radio id="air" name="by" label="Air" />
      <Radio id="sea" name="by" label="Sea" /><Switch id="live" label="Live" isChecked={live} onChange={setLive} /></FormGroup>
    <FormGroup label="Size"><Slider id="size" value={size} onChange={setSize} aria-label="Size" /></FormGroup>
    <FormGroup label="Notes" fieldId="notes"><TextArea id="notes" /></FormGroup>
    <Button id="send">Send</Button><Button id="later" variant="link">Later</Button>
  </Form>;
};
const DATA = [{ name: "Fruit", id: "fruit", defaultExpanded: true, children: [{ name: "Pear", id: "pear" }, { name: "Plum", id: "plum" }] }];
const More = () => {
  const [isOpen, setOpen] = useState(false), [isDialog, setDialog] = useState(false), [page, setPage] = useState(1), [find, setFind] = useState("a");
  return <>
    <SearchInput aria-label="Find" value={find} onChange={(_, next) => setFind(next)} onClear={() => setFind("")} />
    <Label id="tag" onClose={() => null}>red</Label>
    <Dropdown isOpen={isOpen} onOpenChange={setOpen} toggle={(ref) => <MenuToggle ref={ref} id="menu" onClick={() => setOpen(!isOpen)}>Menu</MenuToggle>}>
      <DropdownList><DropdownItem key="cut">Cut</DropdownItem><DropdownItem key="copy">Copy</DropdownItem></DropdownList></Dropdown>
    <TreeView data={DATA} onSelect={() => null} /><ExpandableSection toggleText="Details">text</ExpandableSection>
    <Pagination itemCount={60} perPage={10} page={page} onSetPage={(_, next) => setPage(next)} />
    <Button id="dialog" onClick={() => setDialog(true)}>Dialog</Button>
    <Modal isOpen={isDialog} onClose={() => setDialog(false)} variant="small"><ModalHeader title="Sure?" /><ModalBody>Really</ModalBody>
      <ModalFooter><Button id="yes">Yes</Button><Button id="no" variant="link">No</Button></ModalFooter></Modal>
  </>;
};
const Page = () => {
  const [tab, setTab] = useValue(0);
  return <><Tabs activeKey={tab} onSelect={setTab}><Tab eventKey={0} title={<TabTitleText>Entry</TabTitleText>} />
    <Tab eventKey={1} title={<TabTitleText>More</TabTitleText>} /></Tabs>{tab ? <More /> : <Entry />}</>;
};
createRoot(document.getElementById("app")).render(<Page />);
